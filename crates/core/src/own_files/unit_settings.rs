//! Reads the settings of units, drop-ins and presets, as far as they may concern Machinist's own units.

/// What a drop-in for all services or timers may set: limits, logs and what happens on failure. Anything else is for the
/// services that need it. A name with `*` at its end stands for all settings that begin so.
const SAFE_FOR_ALL: [&str; 37] = [
    "AccuracySec",
    "AllowedCPUs",
    "AllowedMemoryNodes",
    "BlockIO*",
    "CPU*",
    "CoredumpFilter",
    "Delegate*",
    "Description",
    "Documentation",
    "Environment",
    "FixedRandomDelay",
    "IO*",
    "IPAccounting",
    "JobTimeout*",
    "Limit*",
    "Log*",
    "ManagedOOM*",
    "Memory*",
    "NUMA*",
    "Nice",
    "OOM*",
    "OnFailure*",
    "OnSuccess*",
    "PassEnvironment",
    "RandomizedDelaySec",
    "RestartSec",
    "Slice",
    "StandardError",
    "StandardOutput",
    "StartLimit*",
    "StartupCPU*",
    "StartupIO*",
    "StartupMemory*",
    "Syslog*",
    "Tasks*",
    "Timeout*",
    "UnsetEnvironment",
];
/// Settings with which a unit takes the place of another one, or stops it.
const AGAINST_OTHERS: [&str; 4] = ["Alias", "Conflicts", "PropagatesStopTo", "RequiredBy"];

/// The first setting of a drop-in with which a service of any kind might not run any more.
pub(super) fn unsafe_for_all(text: &str) -> Option<String> {
    let mut found = settings(text).into_iter().filter(|(name, value)| !is_safe(name, value));
    found.next().map(|(name, value)| format!("{name}={value}"))
}

fn is_safe(name: &str, value: &str) -> bool {
    let is_known = |safe: &&str| match safe.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == *safe,
    };
    match name {
        "Restart" => matches!(value, "always" | "on-failure"),
        // One that is missing and does not begin so fails the service.
        "EnvironmentFile" => value.starts_with('-') || value.is_empty(),
        _ => name.starts_with("X-") || SAFE_FOR_ALL.iter().any(is_known),
    }
}

/// The first setting that names one of our units and replaces, stops or disables it.
pub(super) fn setting_against_own_unit(text: &str, is_own: fn(&str) -> bool) -> Option<String> {
    let setting = settings(text).into_iter().find(|(name, value)| {
        AGAINST_OTHERS.contains(&name.as_str()) && value.split_whitespace().any(is_own)
    });
    setting.map(|(name, value)| format!("{name}={value}")).or_else(|| disabling_preset(text))
}

/// A line of a preset that disables our units by name. `disable *` is what many systems end their presets with; units that are
/// enabled already stay so.
fn disabling_preset(text: &str) -> Option<String> {
    let disables = |line: &&str| {
        let pattern = line.strip_prefix("disable").filter(|rest| rest.starts_with([' ', '\t']));
        pattern.is_some_and(|pattern| pattern.trim_start().starts_with("machinist-"))
    };
    text.lines().map(str::trim).find(disables).map(str::to_owned)
}

/// The settings of a unit, in order, with lines that go on joined as systemd joins them.
fn settings(text: &str) -> Vec<(String, String)> {
    let (mut found, mut begun) = (Vec::new(), String::new());
    for line in text.lines() {
        let line = line.trim();
        if line.starts_with(['#', ';']) {
            continue; // also between the lines of one setting
        }
        if let Some(part) = line.strip_suffix('\\') {
            begun.push_str(part);
            begun.push(' ');
            continue;
        }
        begun.push_str(line);
        let whole = std::mem::take(&mut begun);
        if let Some((name, value)) = whole.split_once('=').filter(|_| !whole.starts_with('[')) {
            found.push((name.trim().to_owned(), value.trim().to_owned()));
        }
    }
    if let Some((name, value)) = begun.split_once('=') {
        found.push((name.trim().to_owned(), value.trim().to_owned()));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_as_systemd_reads_them() {
        let text = "# a=b\n[Service]\nExecStart = /bin/sh -c \\\n; comment\n  'a=b'\nUser=\n\nnonsense\nLast=x\\";
        let expected = [("ExecStart", "/bin/sh -c  'a=b'"), ("User", ""), ("Last", "x")];
        let expected: Vec<_> = expected
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        assert_eq!(settings(text), expected);
        assert_eq!(settings(""), []);
    }

    #[test]
    fn what_all_services_may_have() {
        for (text, expected) in [
            ("[Service]\nLimitNOFILE=1024:524288\nMemoryHigh=80%\nOOMScoreAdjust=-5\n", None),
            ("[Service]\nEnvironment=GODEBUG=x509ignoreCN=0\nTimeoutStopSec=30\n", None),
            ("[Service]\nRestart=on-failure\nEnvironmentFile=-/etc/proxy.env\n", None),
            ("[Unit]\nOnFailure=report@%N.service\nX-Own=1\n", None),
            ("[Service]\nRestart=no\n", Some("Restart=no")),
            ("[Service]\nEnvironmentFile=/etc/proxy.env\n", Some("EnvironmentFile=/etc/proxy.env")),
            ("[Service]\nNice=1\nUser=nobody\n", Some("User=nobody")),
            ("[Service]\nExecStartPre=/bin/false\n", Some("ExecStartPre=/bin/false")),
            ("[Service]\nProtectSystem=strict\n", Some("ProtectSystem=strict")),
            ("[Service]\nIPAddressDeny=any\n", Some("IPAddressDeny=any")),
            ("[Unit]\nAssertPathExists=/x\n", Some("AssertPathExists=/x")),
            ("[Service]\nType=oneshot\n", Some("Type=oneshot")),
        ] {
            assert_eq!(unsafe_for_all(text).as_deref(), expected, "{text}");
        }
    }
}
