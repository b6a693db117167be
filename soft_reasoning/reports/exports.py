"""A finished run in the formats of others: Every Eval Ever's JSON, and ``.eval_results`` of the hub.

Sources: the schema 0.3.0 of https://github.com/evaleval/every_eval_ever, whose ``validate`` accepts the file,
and https://huggingface.co/docs/hub/eval-results.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from soft_reasoning.runs.files import RESULTS, read_manifest, read_results, write_json, write_text
from soft_reasoning.types import UserError

EXPORTS = "exports"
SCHEMA = "0.3.0"


def write_exports(folder: Path, organization: str = "unknown") -> list[Path]:
    """Write the finished run in ``folder`` into ``exports/``, in every format that it fits.

    ``organization`` is who made the run. ``.eval_results`` needs a data set of the hub.

    Returns:
        The files.

    Raises:
        UserError: If the folder holds no finished run, or its problems have no reference answers.
    """
    metrics, manifest = read_results(folder), read_manifest(folder)
    if metrics.get("exact_match") is None:
        raise UserError(f"{folder}: expected problems with reference answers, got none; nothing to export")
    ended = datetime.fromtimestamp(int((folder / RESULTS).stat().st_mtime), UTC)
    config = manifest["config"]
    model, dataset = str(config["model"]["path"]), config["dataset"]["name"]
    owner, _, name = model.rstrip("/").rpartition("/")
    owner = owner.rpartition("/")[2] or "unknown"
    log = _every_eval_ever(metrics, manifest, ended, f"{owner}/{name}", organization)
    # A file name of its own for each run, the same whenever it is exported.
    identity = uuid.UUID(bytes=uuid.uuid5(uuid.NAMESPACE_URL, log["evaluation_id"]).bytes, version=4)
    parts = [re.sub(r"[^\w.-]", "_", part) for part in (dataset, owner, name)]
    files = [folder.joinpath(EXPORTS, "data", *parts, f"{identity}.json")]
    files[0].parent.mkdir(parents=True, exist_ok=True)
    write_json(files[0], log)
    if (hub := config["dataset"].get("hub")) is not None:
        entry = {
            "dataset": {"id": hub["id"], "task_id": hub.get("config") or "default"},
            "value": round(100 * metrics["exact_match"], 2),
            "date": f"{ended:%Y-%m-%d}",
            "notes": f"{_how(config)}, {metrics['problems']} problems",
        }
        if hub.get("revision"):
            entry["dataset"]["revision"] = hub["revision"]
        files.append(folder.joinpath(EXPORTS, ".eval_results", f"{dataset}_{config['method']['name']}.yaml"))
        files[1].parent.mkdir(exist_ok=True)
        write_text(files[1], yaml.safe_dump([entry], sort_keys=False, allow_unicode=True))
    return files


def _every_eval_ever(
    metrics: Mapping[str, Any], manifest: Mapping[str, Any], ended: datetime, model: str, organization: str
) -> dict[str, Any]:
    config, versions = manifest["config"], manifest.get("versions") or {}
    dataset, time = config["dataset"], str(int(ended.timestamp()))
    hub, vllm = dataset.get("hub"), "vllm" in str(config["engine"].get("_target_", "")).lower()
    data: dict[str, Any] = {"dataset_name": dataset["name"], "source_type": "other"}
    if hub is not None:
        data |= {"source_type": "hf_dataset", "hf_repo": hub["id"], "hf_split": hub.get("split", "test")}
        data["samples_number"] = metrics["problems"]
    engine = {"name": "vllm" if vllm else "transformers"}
    if not vllm:
        engine["version"] = versions.get("transformers", "unknown")
    generation: dict[str, Any] = {"max_tokens": config["max_new_tokens"]}
    if config.get("command"):
        generation["execution_command"] = config["command"]
    results = []
    for key, metric in (("exact_match", "accuracy"), ("coverage", "coverage")):
        error = metrics.get(f"{key}_stderr")
        uncertainty = {"num_samples": metrics["problems"]}
        if error is not None:
            uncertainty["standard_error"] = {"value": error, "method": "analytic"}
        results.append(
            {
                "evaluation_result_id": f"{dataset['name']}/{metric}",
                "evaluation_name": dataset["name"],
                "source_data": data,
                "metric_config": {
                    "metric_id": metric, "metric_name": metric, "metric_kind": "accuracy",
                    "metric_unit": "proportion", "lower_is_better": False, "score_type": "continuous",
                    "min_score": 0.0, "max_score": 1.0, "evaluation_description": DESCRIPTIONS[metric],
                },
                "score_details": {"score": metrics[key], "uncertainty": uncertainty},
                "generation_config": {
                    "generation_args": generation,
                    "additional_details": {"method": _how(config), "seed": str(config["seed"])},
                },
            }
        )  # fmt: skip
    local = Path(config["model"]["path"]).exists() or model.startswith("unknown/")
    return {
        "schema_version": SCHEMA,
        "evaluation_id": f"{dataset['name']}/{model.replace('/', '_')}/{time}",
        "evaluation_timestamp": time,
        "retrieved_timestamp": time,
        "source_metadata": {
            "source_name": "soft_reasoning", "source_type": "evaluation_run",
            "source_organization_name": organization, "evaluator_relationship": "third_party",
        },
        "eval_library": {
            "name": "soft_reasoning", "version": versions.get("soft-reasoning", "unknown"),
        },
        "model_info": {
            "name": model.rpartition("/")[2], "id": model, "developer": model.partition("/")[0],
            "inference_engine": engine,
            "additional_details": {
                "deployment_type": "self_deployed",
                "model_availability": "unknown" if local else "open_weights",
            },
        },
        "evaluation_results": results,
    }  # fmt: skip


DESCRIPTIONS = {
    "accuracy": "Share of problems whose final answer is right.",
    "coverage": "Share of problems with at least one right candidate.",
}


def _how(config: Mapping[str, Any]) -> str:
    """The method in words: its label in tables, or its name."""
    return str(config.get("label") or config["method"]["name"])
