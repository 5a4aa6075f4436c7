//! An OS image that is named by a tag: the registry is asked once, and a pool is never mixed.

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
    let home = ApiServer::hub().unwrap();
    let settings = json!({
        "apiVersion": "config.openshift.io/v1", "kind": "Image", "metadata": {"name": "cluster"},
        "spec": {"registrySources": {"insecureRegistries": [registry.host()]}},
    });
    let made = home.post("/apis/config.openshift.io/v1/images", &settings);
    assert_eq!(made.code, 201, "{made:?}");
    let tag = format!("{}/os/test:stable", registry.host());

    apply_config(&home, &tag, "one");
    let one = wait_for_config_with(&home, "one");
    assert_eq!(one["metadata"]["annotations"][PINNED], first);
    // What is rendered is what the administrator wrote: its name is that of the original.
    assert_eq!(one["spec"]["osImageURL"], tag);

    // The tag moves on; a change of a file does not bring another system along.
    let second = registry.push("os/test:stable", &image("2")).unwrap();
    assert_ne!(first, second);
    apply_config(&home, &tag, "two");
    let two = wait_for_config_with(&home, "two");
    assert_eq!(two["metadata"]["annotations"][PINNED], first);

    // A tag that nobody knows keeps nobody from rendering, as with the original; but it is said.
    let unknown = format!("{}/os/test:unknown", registry.host());
    apply_config(&home, &unknown, "three");
    let three = wait_for_config_with(&home, "three");
    assert_eq!(three["metadata"]["annotations"][PINNED], Value::Null);
    wait_for_event(&home, &["OSImageNotPinned", "by its digest"]);

    // By digest nobody is asked.
    apply_config(&home, &second, "four");
    let four = wait_for_config_with(&home, "four");
    assert_eq!(four["metadata"]["annotations"][PINNED], Value::Null);
    assert_eq!(four["spec"]["osImageURL"], second);

    // A tag in the pool's annotation is pinned like any other.
    let third = registry.push("os/test:pool", &image("3")).unwrap();
    let tag = format!("{}/os/test:pool", registry.host());
    apply_config(&home, "", "five");
    assert_eq!(wait_for_config_with(&home, "five")["spec"]["osImageURL"], "");
    kubectl(&home, &["annotate", "mcp", "worker", &format!("{ANNOTATION}={tag}")]);
    let five = rendered(&home, "worker", "the annotation", |it| it["spec"]["osImageURL"] == *tag);
    assert_eq!(five["metadata"]["annotations"][PINNED], third);
}
