//! A pool says which image its machines run: by a stream, or by its annotation; and goes back.

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
fn wait_for_image(home: &ApiServer, pool: &str, image: &str) -> Value {
    rendered(home, pool, image, |config| config["spec"]["osImageURL"] == *image)
}

fn pool(home: &ApiServer, name: &str) -> Value {
    home.get(&format!("{API}/machineconfigpools/{name}")).body
}

/// Waits until the workers cannot be rendered, for this reason.
fn wait_for_refusal(home: &ApiServer, reason: &str) {
    wait_for(reason, || {
        let conditions = pool(home, "worker")["status"]["conditions"].take();
        let conditions = conditions.as_array().cloned().unwrap_or_default();
        let bad = conditions.iter().find(|it| it["type"] == "RenderDegraded");
        let message = bad.filter(|it| it["status"] == "True").map(|it| it["message"].to_string());
        Ok(message.unwrap_or_default().replace("\\\"", "\"").contains(reason))
    })
    .unwrap();
}

fn follow(home: &ApiServer, stream: &Value) {
    let patch = json!({"spec": {"osImageStream": stream}}).to_string();
    kubectl(home, &["patch", "mcp", "worker", "--type=merge", "-p", &patch]);
}

#[test]
fn a_pool_follows_its_stream_or_its_annotation_and_goes_back() {
    let home = ApiServer::hub().unwrap();
    apply_config(&home, "", "one");
    assert_eq!(wait_for_config_with(&home, "one")["spec"]["osImageURL"], "");
    let roles = json!([{"key": "machineconfiguration.openshift.io/role", "operator": "In", "values": ["worker", "infra"]}]);
    apply(
        &home,
        &json!({
            "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool", "metadata": {"name": "infra"},
            "spec": {"machineConfigSelector": {"matchExpressions": roles}, "nodeSelector": {"matchLabels": {"infra": ""}}},
        }),
    );
    wait_for_image(&home, "infra", "");

    // A stream is named before anybody has said which there are.
    follow(&home, &json!({"name": "ten"}));
    wait_for_refusal(&home, "could not get OSImageStream for pool worker: ");
    follow(&home, &Value::Null);
    let stream = |name: &str| json!({"name": name, "osImage": image(name), "osExtensionsImage": image("extensions")});
    let streams = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "OSImageStream", "metadata": {"name": "cluster"},
        "spec": {"defaultStream": "nine"},
        "status": {"defaultStream": "nine", "availableStreams": [stream("nine"), stream("ten")]},
    });
    let file = write_manifest(&home, &streams);
    kubectl(&home, &["apply", "-f", &file]);
    kubectl(&home, &["replace", "--subresource=status", "-f", &file]);
    let nine = wait_for_image(&home, "worker", &image("nine"));
    assert_eq!(nine["spec"]["baseOSExtensionsContainerImage"], image("extensions"));
    wait_for_image(&home, "infra", &image("nine"));

    // A stream of its own, which a custom pool follows.
    follow(&home, &json!({"name": "ten"}));
    wait_for_image(&home, "worker", &image("ten"));
    wait_for_image(&home, "infra", &image("ten"));
    wait_for("the status to name the stream", || {
        Ok(pool(&home, "worker")["status"]["osImageStream"]["name"] == "ten")
    })
    .unwrap();
    follow(&home, &json!({"name": "eleven"}));
    wait_for_refusal(
        &home,
        "could not get OSImageStreamSet for pool worker: osimagestreams.machineconfiguration.openshift.io \"eleven\" not found (streams there: nine, ten",
    );
    follow(&home, &Value::Null);
    wait_for_image(&home, "worker", &image("nine"));

    // An image of its own, with a name that is one.
    let annotate = |value: &str| {
        let word = format!("{ANNOTATION}={value}");
        kubectl(&home, &["annotate", "--overwrite", "mcp", "worker", &word]);
    };
    annotate("fedora");
    wait_for_refusal(
        &home,
        "MachineConfigPool worker: metadata.annotations: machinist.dev/os-image: \"fedora\": it names no registry",
    );
    annotate(&image("own"));
    let own = wait_for_image(&home, "worker", &image("own"));
    let overridden = "machineconfiguration.openshift.io/os-image-url-overridden";
    assert_eq!(own["metadata"]["annotations"][overridden], "true");
    wait_for_image(&home, "infra", &image("own"));
    wait_for_event(
        &home,
        &["OSImageURLOverridden", "via annotation machinist.dev/os-image of pool worker"],
    );
    wait_for("the status to name no stream", || {
        Ok(pool(&home, "worker")["status"]["osImageStream"].is_null())
    })
    .unwrap();
    follow(&home, &json!({"name": "ten"}));
    wait_for_refusal(
        &home,
        "cannot set MachineConfigPool annotation machinist.dev/os-image and MachineConfigPool spec.osImageStream.name simultaneously",
    );
    follow(&home, &Value::Null);
    apply_config(&home, &image("third"), "two");
    wait_for_refusal(
        &home,
        "cannot override MachineConfig osImageURL and set MachineConfigPool annotation machinist.dev/os-image simultaneously (osImageURL from MachineConfig 50-os",
    );
    apply_config(&home, "", "one");

    // Without it the pool is as before, to the byte.
    kubectl(&home, &["annotate", "mcp", "worker", &format!("{ANNOTATION}-")]);
    let back = wait_for_image(&home, "worker", &image("nine"));
    assert_eq!(
        (&back["metadata"]["name"], &back["spec"]),
        (&nine["metadata"]["name"], &nine["spec"])
    );
}
