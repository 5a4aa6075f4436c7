# The machine's own apt configuration, in the words that mmdebstrap takes.
# shellcheck shell=bash

# The Debian sources of this machine's release, as one-line entries.
mirrors() {
    local suite
    suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
    apt-get indextargets --format 'deb $(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
        awk -v suite="$suite" '$(NF-1) ~ "^" suite' | sort -u
}

# How this machine's apt reaches them (proxies, expiry checks).
apt_settings() { apt-config dump | grep -E '^Acquire::(Check-Valid-Until|http|https|Retries)' || true; }
