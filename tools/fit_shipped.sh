#!/usr/bin/env bash
# Fit the calibrations that the package ships. $1: Argonne's table (see capmodel dataset fetch).
set -euo pipefail
argonne=${1:?"give the path of Argonne's All_results.csv"}
date=${2:-2026-11-29}
fit() { .venv/bin/capmodel fit "$1" --name "$2" --date "$date" -o "capmodel/calibrations/$2.json"; }
fit "$argonne" argonne
fit data/silicon_runs.parquet silicon
