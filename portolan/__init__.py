"""The public API for applications; everything else is internal to the service.

from portolan import CoherentClient
"""

from sketch.client import *  # noqa: F403 - the public API is exactly that of the client
from sketch.client import __all__ as __all__
