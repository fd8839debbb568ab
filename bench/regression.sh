#!/usr/bin/env bash
# regression [REVISION] fails if a decision takes over a tenth more CPU on the server,
# or over a tenth more allocations in the client, than at the given revision. Without
# REVISION, it uses the last commit that is older than a day. The two revisions take
# turns on one server, so that other work on the machine affects them equally
# (docs/performance.md).
set -euo pipefail
cd "$(dirname "$0")"

before=$(git rev-parse "${1:-$(git rev-list -1 --before='24 hours ago' HEAD)}")
if [ "$before" = "$(git rev-parse HEAD)" ]; then
	echo "no commits in the last 24 hours: there is nothing to compare"
	exit 0
fi

# Prints each row and figure, before and now.
figures='(.rows | INDEX(.name)) as $row
	| ("window", "window, 3 limits") as $name | $row[$name] as $now
	| $row[$name | sub("^window"; "window before")] as $before
	| [$name, "server CPU in µs", $before.process_us, $now.process_us],
	  [$name, "client allocations", $before.allocs, $now.allocs] | @tsv'

./earlier.sh "$before" -json -memory 0 -rounds 5 -rows '^window( before)?(, 3 limits)?$' server |
	jq -r "$figures" |
	awk -F'\t' '{ printf "%s: %s: %.2f, before %.2f\n", $1, $2, $4, $3 } $4 > 1.1 * $3 { more = 1; print "  over a tenth more" } END { exit more || NR != 4 }'
