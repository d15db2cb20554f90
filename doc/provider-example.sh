#!/bin/sh
# A provider in a page of shell (limb-provider(7)): environments are directories of this
# machine, without walls. Put what makes yours in their place, and try it with
#
#	limb provider test ./provider-example.sh
#	limb create box --provider ./provider-example.sh
#
# It needs jq.
set -u

# What runs, one file each: what list answers.
running=${XDG_RUNTIME_DIR:-/tmp}/limb-example-$(id -u)

fail() {
	jq -cn --arg error "$1" --arg detail "$2" '{$error, $detail, next_steps: []}'
	exit 1
}
status() {
	jq -cn --arg status "$1" '{$status}'
	exit 0
}

in=$(cat)
printf '%s' "$in" | jq -e 'type == "object"' >/dev/null 2>&1 ||
	fail usage 'the input is no JSON object'
field() {
	printf '%s' "$in" | jq -r "$1 // empty"
}
id=$(field .id)
dir=$(field .dir) # ours, and private
root=$(field .spec.root)
syncd=$(field .spec.syncd)

# Each verb can be called again, and after anything.
runs() {
	[ -d "$dir/run" ] && "$syncd" probe --dir "$dir/run" 2>/dev/null
}
end() {
	[ ! -d "$dir/run" ] || timeout 20 "$syncd" stop --dir "$dir/run" >&2 ||
		fail io_error 'limb-syncd does not stop'
	rm -f "$running/$id"
}

case ${1-} in
info)
	jq -cn '{protocol: 1, name: "example", version: "1",
		verbs: ["info", "create", "start", "stop", "delete", "status", "command", "list"],
		isolation: [], enforces: {cpu: "none", memory: "none", pids: "none", disk: "none",
		network: "none"}, keeps: {stop: "files", pause: "none"}}'
	;;
create)
	mkdir -p "$dir/run" "$root" || fail io_error "'$root' cannot be made"
	jq -cn --arg handle "$id" --arg root "$root" --arg dir "$dir/run" --arg syncd "$syncd" \
		'{$handle, $root, host_root: $root, $dir, $syncd}'
	;;
start)
	if [ ! -d "$dir/run" ] || [ ! -d "$root" ]; then
		fail file_not_found "there is no '$root' to start in"
	fi
	timeout 20 "$syncd" start --dir "$dir/run" --root "$root" --env "$id" >&2 ||
		fail io_error 'limb-syncd does not start'
	mkdir -p "$running" && field .brain >"$running/$id"
	status Running
	;;
stop)
	end
	[ -d "$dir/run" ] && status Stopped
	status NotFound
	;;
delete)
	end
	rm -rf "$dir/run"
	status NotFound
	;;
status)
	runs && status Running
	[ -d "$dir/run" ] && status Stopped
	status NotFound
	;;
command)
	printf '%s' "$in" | jq -c '{argv: .argv}'
	;;
list)
	for file in "$running"/*; do
		[ -f "$file" ] || continue
		jq -cn --arg id "${file##*/}" --arg brain "$(cat "$file")" '{$id, handle: $id, $brain}'
	done | jq -cs '{environments: .}'
	;;
*)
	fail unsupported "no verb '${1-}'"
	;;
esac
