"""Commands, options and variables that are gone, and what replaces them. A row stays for two releases."""

from __future__ import annotations

from collections.abc import Mapping

REPLACED: Mapping[str, str] = {
    # gone in 0.2, printed until 0.3
    "advise": "'dasklab whatif RUN --set dask.SETTING=VALUE' predicts the effect of a setting, "
    "and an experiment with the setting as a factor measures it.",
}
"""Words after ``dasklab``, such as ``results compare --old`` -> a sentence that names the replacement."""

REPLACED_VARIABLES: Mapping[str, str] = {
    # gone in 0.2, printed until 0.3
    "dask_record": "workload_record: false switches recording off",
    "dask_recorder_source": "the client of a trial records, with the installed dasklab",
}
"""Variables of an inventory -> what replaces them."""
