//! An OS image that is named by a tag: the tag is resolved once, and all machines of a pool get the same image.

use super::{
    ANNOTATION, PINNED, apply_config, kubectl, rendered, wait_for_config_with, wait_for_event,
};
use machinist_e2e::{ApiServer, ContainerImage, ImageRegistry, Lab};
use serde_json::{Value, json};

#[test]
fn a_tag_is_pinned_once_and_for_all_machines() {
    let lab = Lab::new().unwrap();
    let registry = ImageRegistry::start(&lab).unwrap();
    let image = |text: &str| ContainerImage::new().file("etc/version", 0o644, text);
    let first = registry.push("os/test:stable", &image("1")).unwrap();
    let api_server = ApiServer::hub().unwrap();
    let settings = json!({
        "apiVersion": "config.openshift.io/v1", "kind": "Image", "metadata": {"name": "cluster"},
        "spec": {"registrySources": {"insecureRegistries": [registry.host()]}},
    });
    let made = api_server.post("/apis/config.openshift.io/v1/images", &settings);
    assert_eq!(made.code, 201, "{made:?}");
    let tag = format!("{}/os/test:stable", registry.host());

    apply_config(&api_server, &tag, "one");
    let one = wait_for_config_with(&api_server, "one");
    assert_eq!(one["metadata"]["annotations"][PINNED], first);
    // The rendered config contains what the administrator wrote, so its name is the one MCO computes.
    assert_eq!(one["spec"]["osImageURL"], tag);

    // The tag moves; a file change does not bring a new image with it.
    let second = registry.push("os/test:stable", &image("2")).unwrap();
    assert_ne!(first, second);
    apply_config(&api_server, &tag, "two");
    let two = wait_for_config_with(&api_server, "two");
    assert_eq!(two["metadata"]["annotations"][PINNED], first);

    // An unknown tag does not block rendering, as in MCO, but it is reported.
    let unknown = format!("{}/os/test:unknown", registry.host());
    apply_config(&api_server, &unknown, "three");
    let three = wait_for_config_with(&api_server, "three");
    assert_eq!(three["metadata"]["annotations"][PINNED], Value::Null);
    wait_for_event(&api_server, &["OSImageNotPinned", "by its digest"]);

    // A digest needs no registry.
    apply_config(&api_server, &second, "four");
    let four = wait_for_config_with(&api_server, "four");
    assert_eq!(four["metadata"]["annotations"][PINNED], Value::Null);
    assert_eq!(four["spec"]["osImageURL"], second);

    // A tag in the pool's annotation is pinned like any other.
    let third = registry.push("os/test:pool", &image("3")).unwrap();
    let tag = format!("{}/os/test:pool", registry.host());
    apply_config(&api_server, "", "five");
    assert_eq!(wait_for_config_with(&api_server, "five")["spec"]["osImageURL"], "");
    kubectl(&api_server, &["annotate", "mcp", "worker", &format!("{ANNOTATION}={tag}")]);
    let five =
        rendered(&api_server, "worker", "the annotation", |it| it["spec"]["osImageURL"] == *tag);
    assert_eq!(five["metadata"]["annotations"][PINNED], third);
}
