#!/bin/sh
# Chromium for the tests of the report, where Debian's packages can be had. Never fails: those tests are skipped, with a
# reason, where there is no browser.
command -v chromium >/dev/null 2>&1 && exit 0
command -v apt-get >/dev/null 2>&1 || { echo "no apt-get: tests in a browser will be skipped" >&2; exit 0; }
[ "$(id -u)" = 0 ] || { echo "not root: tests in a browser will be skipped (apt-get install chromium)" >&2; exit 0; }
{ apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium; } \
  >/dev/null 2>&1 || echo "Chromium could not be installed: tests in a browser will be skipped" >&2
exit 0
