//! A pool selects the image of its machines and reverts it: the machine returns to the system's image, without the
//! layered files.

use super::fixture::{ImageFixture, second_image, status, version};
use machinist_e2e::ContainerImage;
use serde_json::{Value, json};

const STREAMS: &str = "/apis/machineconfiguration.openshift.io/v1/osimagestreams";

#[test]
fn a_machine_follows_the_stream_and_the_annotation_of_its_pool_and_reverts() {
    let (hub, fixture, machine) = ImageFixture::with_joined_machine();
    let base = fixture.push("os/debian:1", &ContainerImage::system().unwrap());
    let layered = fixture.push("os/debian:2", &second_image());
    let boots = machine.boots();

    // The system's image is that of the default stream.
    let streams = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "OSImageStream",
        "metadata": {"name": "cluster"}, "spec": {"defaultStream": "stable"},
    });
    hub.request("POST", STREAMS, &streams).unwrap();
    let stable = json!({"name": "stable", "osImage": base, "osExtensionsImage": base});
    let there = json!({"status": {"defaultStream": "stable", "availableStreams": [stable]}});
    hub.request("PATCH", &format!("{STREAMS}/cluster/status"), &there).unwrap();
    let first = hub.apply_config_spec("50-os", &json!({"kernelArguments": ["pool=1"]}));
    hub.wait_done(&machine, &first);
    assert_eq!((machine.boots(), version(&machine).as_str()), (boots + 1, "v1"));
    assert_eq!(status(&machine)["booted"]["image"], json!(base));

    let annotate = |image: Value| {
        hub.patch_pool(&json!({"metadata": {"annotations": {"machinist.dev/os-image": image}}}));
    };
    let own = hub.wait_rendered_after(|| annotate(json!(layered)));
    hub.wait_done(&machine, &own);
    assert_eq!((machine.boots(), version(&machine).as_str()), (boots + 2, "v2"));
    assert_eq!(machine.read_file("/etc/testkit-new").unwrap(), b"new in v2\n");

    let back = hub.wait_rendered_after(|| annotate(Value::Null));
    assert_eq!(back, first, "the same config as before");
    hub.wait_done(&machine, &back);
    assert_eq!((machine.boots(), version(&machine).as_str()), (boots + 3, "v1"));
    assert_eq!(status(&machine)["booted"]["image"], json!(base));
    assert!(!machine.exists("/etc/testkit-new").unwrap());
    assert!(machine.exists("/usr/bin/chronyc").unwrap());
    assert_eq!(machine.read_file("/etc/local").unwrap(), b"mine\n");
    assert!(machine.sh("cat /proc/cmdline").unwrap().contains("pool=1"));
}
