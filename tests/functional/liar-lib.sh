# shellcheck shell=bash
# liar-lib.sh - brain-lib.sh, and a user's own provider, $T/liar: there is no place behind it,
# only the program at the end of its wire (tests/functional/hostile), which tells the lie that
# the file $T/lie names.
#
#	liar KNOWN	makes it; KNOWN is where that program keeps what it needs to know
. "${0%/*}/brain-lib.sh"
hostile=$LIMB_TOP_BUILDDIR/tests/functional/hostile/hostile

liar() {
	cat >"$T/liar" <<END
#!/bin/bash
case \$1 in
info)
	echo '{"protocol": 1, "name": "liar", "version": "1", "verbs": ["info", "create", "start",
		"stop", "delete", "status", "command", "list"], "isolation": [], "enforces": {},
		"keeps": {"stop": "files", "pause": "none"}}'
	;;
create) jq -c '{handle: .id, root: "/root", dir: "/run", syncd: "/syncd"}' ;;
start | status) echo '{"status": "Running"}' ;;
stop) echo '{"status": "Stopped"}' ;;
delete) echo '{"status": "NotFound"}' ;;
command)
	jq -c --arg lie "\$(cat $T/lie)" '{argv: ["$hostile", "$1", \$lie,
		([.argv as \$a | \$a | to_entries[] | select(.value == "--env") | \$a[.key + 1]][0])]}'
	;;
list) echo '{"environments": []}' ;;
esac
END
	chmod 755 "$T/liar"
	echo none >"$T/lie"
}
