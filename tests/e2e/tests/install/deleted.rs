//! `kubectl delete -k` without the clean uninstallation, in the middle of a drain: docs/existing-cluster.md says how to
//! see the node that stays cordoned, how to repair it, and that another installation goes on where this one ended.

use crate::install::existing_cluster::{GUARDED, POOL, annotations, file, is_done};
use crate::install::image;
use crate::install::support::{NAMESPACE, deploy, get, install};
use anyhow::{Result, ensure};
use machinist_e2e::{Cluster, Lab, cache, wait_for};

/// The command of docs/existing-cluster.md.
const STILL_IN_DRAIN: &str = r#"jsonpath={range .items[?(@.metadata.annotations.machinist\.dev/drain-started)]}{.metadata.name}{"\n"}{end}"#;

fn is_cordoned(cluster: &Cluster, name: &str) -> Result<bool> {
    Ok(get(cluster, &format!("/api/v1/nodes/{name}"))?["spec"]["unschedulable"] == true)
}

fn install_observer(cluster: &Cluster) -> Result<()> {
    cluster.kubectl(&["create", "namespace", NAMESPACE])?;
    let url = format!("--from-literal=apiServerURL={}", cluster.url());
    let settings = ["-n", NAMESPACE, "create", "configmap", "machinist-settings", &url];
    cluster.kubectl(&[&settings[..], &["--from-literal=server=false"]].concat())?;
    install(cluster)
}

#[test]
fn a_node_that_a_deletion_leaves_cordoned_is_found_and_repaired() {
    let page = cache::source_root().join("docs/existing-cluster.md");
    assert!(std::fs::read_to_string(page).unwrap().contains(STILL_IN_DRAIN));
    let lab = Lab::new().unwrap();
    let cluster = Cluster::with_nodes(&lab).unwrap();
    let machines = cluster.boot_kubeadm_nodes(&["n2", "n3"]).unwrap();
    image::load(&lab, &cluster, &machines).unwrap();
    let run = || -> Result<()> {
        install_observer(&cluster)?;
        cluster.apply(POOL)?;
        cluster.apply(&file("50-file", "/etc/from-cluster"))?;
        for name in ["n2", "n3"] {
            wait_for("the machine to have its config", || is_done(&cluster, name))?;
        }
        cluster.apply(GUARDED)?;
        let available = ["deployment/guarded", "--for=condition=Available", "--timeout=60s"];
        cluster.kubectl(&[&["wait"], &available[..]].concat())?;
        // n3 may come first; the drain of n2 is held.
        cluster.apply(&file("60-second", "/etc/second"))?;
        wait_for("the drain of n2 to be held", || {
            let started = annotations(&cluster, "n2")?["drain-started"].clone();
            Ok(is_cordoned(&cluster, "n2")? && started.is_string())
        })?;
        let system = deploy("system").display().to_string();
        cluster.kubectl(&["delete", "-k", &system, "--ignore-not-found", "--timeout=120s"])?;
        ensure!(is_cordoned(&cluster, "n2")?, "nobody was left to uncordon it");
        let found = cluster.kubectl(&["get", "nodes", "-o", STILL_IN_DRAIN])?;
        ensure!(found == "n2\n", "{found:?}");
        // The repair of the page.
        cluster.kubectl(&["uncordon", "n2"])?;
        cluster.kubectl(&["annotate", "node", "n2", "machinist.dev/drain-started-"])?;
        ensure!(!is_cordoned(&cluster, "n2")?);
        ensure!(cluster.kubectl(&["get", "nodes", "-o", STILL_IN_DRAIN])?.is_empty());
        machines[0].sh("! test -e /etc/second")?;
        // Another installation goes on where this one ended.
        cluster.kubectl(&["delete", "poddisruptionbudget/guard"])?;
        install_observer(&cluster)?;
        for name in ["n2", "n3"] {
            wait_for("the machine to have its config", || {
                is_done(&cluster, name)?;
                ensure!(!is_cordoned(&cluster, name)?, "{name} is cordoned");
                Ok(true)
            })?;
        }
        wait_for("both machines to have the file", || {
            for machine in &machines {
                ensure!(machine.exists("/etc/second")?, "{}", machine.name());
            }
            Ok(true)
        })
    };
    if let Err(error) = run() {
        let nodes = ["n2", "n3"].map(|name| annotations(&cluster, name));
        let pods = cluster.kubectl(&["get", "pods,nodes", "-A", "-o", "wide"]);
        eprintln!("{nodes:?}\n{}", pods.unwrap_or_default());
        panic!("{error:#}");
    }
}
