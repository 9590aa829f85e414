"""What Dask recorded of timed and of captured repeats: a folder each, with a record like any cluster's."""

RECORD_FOLDER = "record"
CAPTURE_RECORD_FOLDER = "capture-record"
RECORD_DOCUMENT = "record.json"  # in such a folder; ``dasklab.records.document`` has its content
