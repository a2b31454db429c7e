"""Models and data sets brought here: parallel, resumable, verified, cached, to one target or several."""

from tonnage.fetching.fetching import Watcher, fetch, verify
from tonnage.fetching.results import Fetched, FetchedFile, FetchRequest, VerifiedFile

__all__ = ["FetchRequest", "Fetched", "FetchedFile", "VerifiedFile", "Watcher", "fetch", "verify"]
