"""Versions of models, and which of them is current.

Below the registry's root each model has a folder of its name::

    versions/00000003.json    what version 3 holds: its files with their sha256, facts, parent
    files/TOKEN/…             these files, written before the version is
    changes/00000005.json     the fifth change: promotion, rollback, removal

Versions and changes are logs (`distfms.store.log`). Thus the last change says which version is
current, of two that promote at the same time one is refused, and a reader sees the version before
or the version after. On storage that is neither a disk nor known for conditional puts (S3, GCS and
Azure are; sftp, smb and some services that speak S3 are not), two changes in the same instant may
both be believed done; the later write stands.
"""

from distfms.registry.records import Change, Version, author
from distfms.registry.registry import VARIABLE, Registry, open_registry
from distfms.store.log import Record

__all__ = ["VARIABLE", "Change", "Record", "Registry", "Version", "author", "open_registry"]
