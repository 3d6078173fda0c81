"""The planner over HTTP and in a browser: parse, call, answer. No arithmetic.

`capmodel.service.app.create_app` makes the ASGI application; `capmodel serve` runs it.
"""
