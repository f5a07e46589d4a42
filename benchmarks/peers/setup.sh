#!/bin/sh
# Makes the environment of one peer of the benchmarks: setup.sh NAME → .cache/peers/NAME
set -eu
name=${1:?"usage: setup.sh NAME, where requirements-NAME.txt lies beside this script"}
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
root=$(CDPATH= cd -- "$here/../.." && pwd)
requirements=$here/requirements-$name.txt
if [ ! -f "$requirements" ]; then
    echo "no $requirements; known: $(cd "$here" && ls requirements-*.txt | tr '\n' ' ')" >&2
    exit 2
fi
target=$root/.cache/peers/$name
"${PYTHON:-python3}" -m venv "$target"
sed '/^# Everything else/q' "$root/constraints.txt" > "$target/constraints.txt"  # the rest is for sfumato's own needs
"$target/bin/pip" install --quiet -c "$target/constraints.txt" -r "$requirements"
without=$(sed -n 's/^# without: //p' "$requirements")  # what it names as a need, does not use, and fails to import
# shellcheck disable=SC2086
[ -z "$without" ] || "$target/bin/pip" uninstall --quiet --yes $without
echo "$target is ready"
