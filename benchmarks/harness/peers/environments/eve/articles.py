"""The articles as Eve serves them; imported by gunicorn in Eve's own environment, never by ours."""

from __future__ import annotations

import os

from eve import Eve

FIELDS = {
    "_id": {"type": "string"},
    "title": {"type": "string", "required": True, "maxlength": 300},
    "author": {"type": "string"},
    "summary": {"type": "string"},
    "shelf": {"type": "integer"},
    "hits": {"type": "integer"},
}

app = Eve(
    settings={
        "MONGO_URI": os.environ["PEER_MONGO_URL"],
        "MONGO_WRITE_CONCERN": {"w": 1},
        # Not in Portolan's replies: links, other formats, totals of every page.
        "HATEOAS": False,
        "RENDERERS": ["eve.render.JSONRenderer"],
        "OPTIMIZE_PAGINATION_FOR_SPEED": True,
        # It would require the ETag of the object with each PUT.
        "IF_MATCH": False,
        "DOMAIN": {
            "articles": {
                "schema": FIELDS,
                "item_url": 'regex("a[0-9]+")',
                "item_methods": ["GET", "PUT"],
                "mongo_indexes": {"shelf": [("shelf", 1)]},
            }
        },
    }
)
