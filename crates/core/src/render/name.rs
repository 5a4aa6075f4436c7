//! The name of a rendered config: `rendered-<pool>-<hash>`. The hash covers the content alone, so
//! the same sources give the same name in every controller and in MCO.

use md5::{Digest as _, Md5};
use serde_json::Value;

use crate::go::yaml::to_go_yaml;

/// MCO's salt: every hash starts with these bytes.
const SALT: [u8; 80] = [
    0x10, 0x7c, 0xce, 0xe4, 0x8b, 0x38, 0xaf, 0xaf, 0x4f, 0xe5, 0x86, 0x76, 0x9d, 0x9a, 0xd3, 0x6e,
    0x19, 0x5d, 0x2f, 0xfd, 0xac, 0x6a, 0x25, 0x07, 0xae, 0x0d, 0xa0, 0xb9, 0x6e, 0x11, 0x57, 0x34,
    0xdb, 0x83, 0x0c, 0xce, 0xda, 0x8d, 0x74, 0x87, 0xbc, 0xb5, 0xc0, 0x97, 0xe9, 0x3e, 0x7e, 0xa5,
    0x40, 0x53, 0xb3, 0x77, 0x0f, 0xa8, 0xd0, 0xc5, 0x92, 0x6b, 0x3a, 0xe3, 0x85, 0xbc, 0xee, 0x1a,
    0x21, 0x1a, 0xeb, 0xca, 0x20, 0xad, 0x1f, 0xea, 0x29, 0x90, 0x94, 0x4f, 0x06, 0xce, 0x17, 0x16,
];

/// The name of the rendered config with this spec. The spec must have all seven fields.
#[must_use]
pub fn rendered_name(pool: &str, spec: &Value) -> String {
    let mut hasher = Md5::new();
    hasher.update(SALT);
    hasher.update(to_go_yaml(spec));
    format!("rendered-{pool}-{}", crate::hex::hex(&hasher.finalize()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_salt_is_mcos() {
        let digest: Vec<u8> = Md5::digest(SALT).to_vec();
        let expected = 0x7001_8819_7863_0639_35ef_bc7c_9ae4_e300_u128.to_be_bytes();
        assert_eq!(digest, expected);
    }

    #[test]
    fn the_smallest_config_has_its_known_name() {
        let spec = json!({
            "baseOSExtensionsContainerImage": "", "config": {"ignition": {"version": "3.5.0"}},
            "extensions": [], "fips": false, "kernelArguments": [], "kernelType": "default",
            "osImageURL": ""
        });
        let name = "rendered-worker-6da92b29d98fcd722bbf117520c22ee4";
        assert_eq!(rendered_name("worker", &spec), name);
    }
}
