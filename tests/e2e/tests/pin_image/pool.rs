//! A pool selects the image of its machines by a stream or by its annotation, and reverts it.

use super::{
    ANNOTATION, API, apply, apply_config, kubectl, rendered, wait_for_config_with, wait_for_event,
    write_manifest,
};
use machinist_e2e::{ApiServer, wait_for};
use serde_json::{Value, json};

fn image(name: &str) -> String {
    format!("registry.example/os/{name}@sha256:{}", "0".repeat(64))
}

/// Waits until a pool has an image.
fn wait_for_image(api_server: &ApiServer, pool: &str, image: &str) -> Value {
    rendered(api_server, pool, image, |config| config["spec"]["osImageURL"] == *image)
}

fn pool(api_server: &ApiServer, name: &str) -> Value {
    api_server.get(&format!("{API}/machineconfigpools/{name}")).body
}

/// Waits until the worker pool cannot be rendered for this reason.
fn wait_for_refusal(api_server: &ApiServer, reason: &str) {
    wait_for(reason, || {
        let conditions = pool(api_server, "worker")["status"]["conditions"].take();
        let conditions = conditions.as_array().cloned().unwrap_or_default();
        let bad = conditions.iter().find(|it| it["type"] == "RenderDegraded");
        let message = bad.filter(|it| it["status"] == "True").map(|it| it["message"].to_string());
        Ok(message.unwrap_or_default().replace("\\\"", "\"").contains(reason))
    })
    .unwrap();
}

fn follow(api_server: &ApiServer, stream: &Value) {
    let patch = json!({"spec": {"osImageStream": stream}}).to_string();
    kubectl(api_server, &["patch", "mcp", "worker", "--type=merge", "-p", &patch]);
}

#[test]
fn a_pool_follows_its_stream_or_its_annotation_and_reverts() {
    let api_server = ApiServer::hub().unwrap();
    apply_config(&api_server, "", "one");
    assert_eq!(wait_for_config_with(&api_server, "one")["spec"]["osImageURL"], "");
    let roles = json!([{"key": "machineconfiguration.openshift.io/role", "operator": "In", "values": ["worker", "infra"]}]);
    apply(
        &api_server,
        &json!({
            "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool", "metadata": {"name": "infra"},
            "spec": {"machineConfigSelector": {"matchExpressions": roles}, "nodeSelector": {"matchLabels": {"infra": ""}}},
        }),
    );
    wait_for_image(&api_server, "infra", "");

    // A stream is named before any stream is defined.
    follow(&api_server, &json!({"name": "ten"}));
    wait_for_refusal(&api_server, "could not get OSImageStream for pool worker: ");
    follow(&api_server, &Value::Null);
    let stream = |name: &str| json!({"name": name, "osImage": image(name), "osExtensionsImage": image("extensions")});
    let streams = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "OSImageStream", "metadata": {"name": "cluster"},
        "spec": {"defaultStream": "nine"},
        "status": {"defaultStream": "nine", "availableStreams": [stream("nine"), stream("ten")]},
    });
    let file = write_manifest(&api_server, &streams);
    kubectl(&api_server, &["apply", "-f", &file]);
    kubectl(&api_server, &["replace", "--subresource=status", "-f", &file]);
    let nine = wait_for_image(&api_server, "worker", &image("nine"));
    assert_eq!(nine["spec"]["baseOSExtensionsContainerImage"], image("extensions"));
    wait_for_image(&api_server, "infra", &image("nine"));

    // The pool's own stream, which a custom pool inherits.
    follow(&api_server, &json!({"name": "ten"}));
    wait_for_image(&api_server, "worker", &image("ten"));
    wait_for_image(&api_server, "infra", &image("ten"));
    wait_for("the status to name the stream", || {
        Ok(pool(&api_server, "worker")["status"]["osImageStream"]["name"] == "ten")
    })
    .unwrap();
    follow(&api_server, &json!({"name": "eleven"}));
    wait_for_refusal(
        &api_server,
        "could not get OSImageStreamSet for pool worker: osimagestreams.machineconfiguration.openshift.io \"eleven\" not found (streams there: nine, ten",
    );
    follow(&api_server, &Value::Null);
    wait_for_image(&api_server, "worker", &image("nine"));

    // The pool's own image, with a valid name.
    let annotate = |value: &str| {
        let word = format!("{ANNOTATION}={value}");
        kubectl(&api_server, &["annotate", "--overwrite", "mcp", "worker", &word]);
    };
    annotate("fedora");
    wait_for_refusal(
        &api_server,
        "MachineConfigPool worker: metadata.annotations: machinist.dev/os-image: \"fedora\": it names no registry",
    );
    annotate(&image("own"));
    let own = wait_for_image(&api_server, "worker", &image("own"));
    let overridden = "machineconfiguration.openshift.io/os-image-url-overridden";
    assert_eq!(own["metadata"]["annotations"][overridden], "true");
    wait_for_image(&api_server, "infra", &image("own"));
    wait_for_event(
        &api_server,
        &["OSImageURLOverridden", "via annotation machinist.dev/os-image of pool worker"],
    );
    wait_for("the status to name no stream", || {
        Ok(pool(&api_server, "worker")["status"]["osImageStream"].is_null())
    })
    .unwrap();
    follow(&api_server, &json!({"name": "ten"}));
    wait_for_refusal(
        &api_server,
        "cannot set MachineConfigPool annotation machinist.dev/os-image and MachineConfigPool spec.osImageStream.name simultaneously",
    );
    follow(&api_server, &Value::Null);
    apply_config(&api_server, &image("third"), "two");
    wait_for_refusal(
        &api_server,
        "cannot override MachineConfig osImageURL and set MachineConfigPool annotation machinist.dev/os-image simultaneously (osImageURL from MachineConfig 50-os",
    );
    apply_config(&api_server, "", "one");

    // Without it the pool has exactly its previous config.
    kubectl(&api_server, &["annotate", "mcp", "worker", &format!("{ANNOTATION}-")]);
    let back = wait_for_image(&api_server, "worker", &image("nine"));
    assert_eq!(
        (&back["metadata"]["name"], &back["spec"]),
        (&nine["metadata"]["name"], &nine["spec"])
    );
}
