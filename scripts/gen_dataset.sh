#!/bin/sh
# Write demo data as RecordIO files: FOLDER/mnist/{train,test}.
# MNIST comes from $MNIST_SOURCE, a folder of its published files; else from Keras, which downloads it once; else it
# is the sample in edlz. GEN_DATA=sample: the sample at once. GEN_DATA=yes: adult and criteo-generated too.
# Usage: scripts/gen_dataset.sh FOLDER
set -eu
if [ $# -ne 1 ]; then
    echo "error: one folder is needed" >&2
    echo "help: scripts/gen_dataset.sh data" >&2
    exit 2
fi
folder=$1
if [ "${GEN_DATA:-no}" = sample ]; then
    MNIST_SOURCE=$(python3 -c 'from edlz.model_zoo.conversion.shards import SAMPLE_FOLDER; print(SAMPLE_FOLDER)')
fi
edlz zoo data mnist "$folder/mnist" ${MNIST_SOURCE:+--source="$MNIST_SOURCE"}
if [ "${GEN_DATA:-no}" = yes ]; then
    edlz zoo data adult "$folder/adult"
    edlz zoo data criteo-generated "$folder/criteo" --records=100000
fi
