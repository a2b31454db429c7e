"""Models and data sets brought here: parallel, resumable, verified, cached, to one target or several."""

from tonnage.fetching.fetching import Watcher, fetch, verify
from tonnage.fetching.results import CheckedFile, Fetched, FetchedFile, Request

__all__ = ["CheckedFile", "Fetched", "FetchedFile", "Request", "Watcher", "fetch", "verify"]
