#!/bin/sh
# Starts Tomcat 10 and Skep for this folder, until Ctrl-C. Needs: apt install tomcat10-user
#   SKEP      the binary (default: skep)
#   ADDRESS   where to listen (default: 127.0.0.1:8080)
#   AJP_PORT, AJP_PORT_TWO  Tomcat's ports (default: 8009, 8010)
set -eu
here=$(cd "$(dirname "$0")" && pwd)
home=/usr/share/tomcat10
port=${AJP_PORT:-8009} second=${AJP_PORT_TWO:-8010}
[ -f "$home/skel/conf/web.xml" ] || { echo "no Tomcat 10: apt install tomcat10-user" >&2; exit 1; }

run=$(mktemp -d)
chmod 755 "$run"
pids=
trap '[ -z "$pids" ] || kill $pids 2>/dev/null; wait; rm -rf "$run"' EXIT
trap 'exit 0' INT TERM

# Known to both, and to nobody else: whoever reaches an AJP port may say who the client is.
secret=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
mkdir "$run/bin" "$run/conf" "$run/logs" "$run/temp" "$run/webapps" "$run/work"
cp "$home/skel/conf/web.xml" "$run/conf"
fill() {
    sed "s|@HERE@|$here|g; s|@RUN@|$run|g; s|@ADDRESS@|${ADDRESS:-127.0.0.1:8080}|g
        s|@AJP_PORT@|$port|g; s|@AJP_PORT_TWO@|$second|g; s|@SECRET@|$secret|g" "$here/$1"
}
fill skep.toml > "$run/skep.toml"
(umask 077 && fill server.xml > "$run/conf/server.xml" && echo "$secret" > "$run/secret")

# Started as root, Skep becomes another user before it reads the secret.
[ "$(id -u)" != 0 ] || chown "$(id -un skep 2>/dev/null || echo nobody)" "$run/secret"
# The compiler of JSP, which Debian keeps apart from Tomcat.
echo "CLASSPATH=/usr/share/java/eclipse-jdt-core.jar" > "$run/bin/setenv.sh"

export CATALINA_HOME="$home" CATALINA_BASE="$run" CATALINA_OPTS="-Xmx256m -XX:+UseSerialGC"
"$home/bin/catalina.sh" run &
pids=$!
echo "for skep's commands: export SKEP_SOCKET=$run/state/comb.sock"
"${SKEP:-skep}" run --config "$run/skep.toml" --as comb &
pids="$pids $!"
wait $!
