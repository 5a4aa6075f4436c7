//! The kit's image registry.

use machinist_e2e::{ContainerImage, ImageRegistry, Lab};

#[test]
fn an_image_made_by_the_kit_is_pushed_and_found_again() {
    let lab = Lab::new().unwrap();
    let registry = ImageRegistry::start(&lab).unwrap();
    let image = ContainerImage::busybox().unwrap().file("etc/version", 0o644, "1\n");
    let pullspec = registry.push("test/busybox:1", &image).unwrap();
    let digest = registry.digest("test/busybox:1").unwrap();
    assert!(pullspec.ends_with(&format!("/test/busybox@{digest}")), "{pullspec} {digest}");
}
