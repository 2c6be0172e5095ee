"""What applications import of Portolan; everything else is the service's own.

from portolan import CoherentClient
"""

from sketch.client import *  # noqa: F403 - the public face is exactly what the client offers
from sketch.client import __all__ as __all__
