//! What a host can do, from the facts about Debian and RHCOS hosts.

use super::*;
use serde_json::json;

const DEBIAN: &str = "PRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\nID=debian\n";
const RHCOS: &str = "ID=\"rhel\"\nVARIANT_ID=coreos\nPRETTY_NAME=\"RHCOS 9.6\"\n";

fn facts(os_release: &str, is_ostree: bool) -> AbilityFacts {
    AbilityFacts {
        host: HostFacts {
            os_release: os_release.to_owned(),
            is_ostree_booted: is_ostree,
            has_ostree: is_ostree,
            has_rpm_ostree: is_ostree && os_release == RHCOS,
            bootc_status: None,
        },
        architecture: "x86_64",
        ..AbilityFacts::default()
    }
}

fn config(spec: &serde_json::Value) -> MachineConfig {
    serde_json::from_value(json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
        "metadata": {"name": "x"}, "spec": spec,
    }))
    .unwrap()
}

#[test]
fn each_kind_of_host_refuses_what_it_cannot_do() {
    let debian = facts(DEBIAN, false);
    let grub = BootLoaderFacts { has_update_grub: true, ..BootLoaderFacts::default() };
    let with_grub = AbilityFacts { loader: grub, ..debian.clone() };
    let (ostree, rhcos) = (facts(DEBIAN, true), facts(RHCOS, true));
    let kargs = json!({"kernelArguments": ["a=1"]});
    let realtime = json!({"kernelType": "realtime"});
    let large = json!({"kernelType": "64k-pages"});
    let extensions = json!({"extensions": ["usbguard"]});
    let image = json!({"osImageURL": "r.example/os@sha256:a"});
    for (host, spec, expected) in [
        (
            &debian,
            &kargs,
            Some(
                "spec.kernelArguments: this host is package-based and cannot set a=1: it has no boot loader",
            ),
        ),
        (&with_grub, &kargs, None),
        (&ostree, &kargs, None),
        (&debian, &realtime, Some("spec.kernelType: this host is package-based")),
        (
            &ostree,
            &realtime,
            Some("spec.kernelType: realtime is not available on this host (Debian"),
        ),
        (&rhcos, &realtime, None),
        (&rhcos, &large, Some("spec.kernelType: 64k-pages is not available")),
        (&debian, &extensions, Some("spec.extensions: ")),
        (&ostree, &extensions, Some("spec.extensions: ")),
        (&rhcos, &extensions, None),
        (&debian, &image, Some("spec.osImageURL: ")),
        (&ostree, &image, None),
    ] {
        let abilities = HostAbilities::from_facts(host);
        let refused = abilities.config_refusal(&config(&json!({})), &config(spec));
        match (&refused, expected) {
            (Some(reason), Some(start)) => assert!(reason.starts_with(start), "{reason}"),
            _ => assert_eq!(refused.as_deref(), expected, "{spec}"),
        }
        // What a machine has already, or gives up, is no reason.
        let has = config(spec);
        assert_eq!(abilities.config_refusal(&has, &has), None);
        let kept = abilities
            .config_refusal(&config(&json!({"kernelArguments": ["a=1", "b"]})), &config(&kargs));
        assert_eq!(kept, None);
    }
}

#[test]
fn reports_survive_the_node_and_hostile_ones_are_ignored() {
    let commands = vec!["containerd", "podman", "sshd", "apt-get"];
    let found = AbilityFacts {
        commands,
        is_systemd: true,
        authorized_keys: Some(".ssh/authorized_keys".to_owned()),
        containerd_config: Some("[x]\n  config_path = \"/etc/containerd/certs.d\"\n".to_owned()),
        ..facts(DEBIAN, false)
    };
    let abilities = HostAbilities::from_facts(&found);
    let report = abilities.to_report();
    assert_eq!(HostAbilities::parse(&report), Some(abilities.clone()), "{report}");
    let written: serde_json::Value = serde_json::from_str(&report).unwrap();
    assert_eq!(
        written,
        json!({
            "os": "Debian GNU/Linux 12 (bookworm)", "init": "systemd", "images": "plain",
            "bootLoader": "nobody", "noKernelArguments": abilities.no_kernel_arguments,
            "kernelTypes": ["default"], "extensions": false,
            "containerRuntimes": ["containerd", "podman"],
            "authorizedKeys": ".ssh/authorized_keys", "users": "any", "selinux": false,
            "packages": "apt",
        })
    );
    for hostile in
        ["", "x", "7", "{\"images\": 7}", &format!("{{\"os\": \"{}\"}}", "x".repeat(5000))]
    {
        assert_eq!(HostAbilities::parse(hostile), None, "{hostile:.40}");
    }
    // A newer daemon may say more.
    assert!(HostAbilities::parse("{\"images\": \"plain\", \"more\": 1}").is_some());
}

#[test]
fn containerd_reads_mirrors_where_its_settings_say_so() {
    let with = |config: Option<&str>, major| AbilityFacts {
        commands: vec!["containerd"],
        containerd_config: config.map(str::to_owned),
        containerd_major: major,
        ..facts(DEBIAN, false)
    };
    for (config, major, expected) in [
        (None, Some(1), HostRuntime::ContainerdWithoutCertsD),
        (None, None, HostRuntime::ContainerdWithoutCertsD),
        (None, Some(2), HostRuntime::Containerd),
        (Some("config_path = \"\""), Some(2), HostRuntime::ContainerdWithoutCertsD),
        (Some("  config_path = '/etc/containerd/certs.d:/x'"), Some(1), HostRuntime::Containerd),
    ] {
        let found = HostAbilities::from_facts(&with(config, major)).container_runtimes;
        assert_eq!(found, [expected], "{config:?} {major:?}");
    }
}

#[test]
fn containerd_reads_drop_ins_that_its_settings_import() {
    for (config, expected) in [
        ("", false),
        ("version = 2\nimports = [\"/etc/containerd/conf.d/*.toml\"]\n", true),
        ("imports=['/x.toml', '/etc/containerd/conf.d/*.toml']", true),
        ("imports = [\n  \"/etc/containerd/conf.d/*.toml\", # ours\n]\n", true),
        ("imports = []\n", false),
        ("imports = [\"/etc/containerd/other.d/*.toml\"]", false),
        ("# imports = [\"/etc/containerd/conf.d/*.toml\"]", false),
        ("[plugins.x]\nimports = [\"/etc/containerd/conf.d/*.toml\"]", false),
        ("imports = [", false),
        ("imports = \"/etc/containerd/conf.d/*.toml\"", false),
    ] {
        let found = HostAbilities::from_facts(&AbilityFacts {
            commands: vec!["containerd"],
            containerd_config: Some(config.to_owned()),
            ..facts(DEBIAN, false)
        });
        assert_eq!(found.containerd_drop_ins, expected, "{config}");
        assert_eq!(HostAbilities::parse(&found.to_report()), Some(found), "{config}");
    }
}

#[test]
fn whose_rules_apply_to_users() {
    for (os_release, expected) in
        [(DEBIAN, UserRules::Any), (RHCOS, UserRules::Core), ("", UserRules::Core)]
    {
        assert_eq!(user_rules(os_release), expected, "{os_release}");
    }
}
