"""Read by schemathesis: each request has an Idempotency-Key of its own, for a second body under one key is refused."""

import uuid

import schemathesis


@schemathesis.hook
def before_call(_context, case, _kwargs):
    if case.headers and "idempotency-key" in case.headers:
        case.headers["idempotency-key"] += uuid.uuid4().hex
