//! Who is asking, and what they may do.
//!
//! | module | is |
//! |---|---|
//! | [`roles`] | pure: what the members of a group may do |
//! | [`tokens`] | bearer tokens, stored as hashes |
//! | [`certificates`] | the hub's own CA, and whom a client certificate names |
//! | [`csr`] | which signing requests are approved and signed, and the task that does it |

pub mod authorizer;
pub mod certificates;
pub mod csr;
pub mod tokens;

/// The group whose members may do everything.
pub const ADMIN_GROUP: &str = "system:masters";
/// The group whose members may look at everything but secrets.
pub const VIEWER_GROUP: &str = "machinist:viewers";
/// The group of the controllers.
pub const CONTROLLER_GROUP: &str = "machinist:controllers";
/// The group of machines.
pub const NODE_GROUP: &str = "system:nodes";
/// What comes before a machine's name in its user name.
pub const NODE_USER_PREFIX: &str = "system:node:";
/// The group of machines that have no certificate yet.
pub const BOOTSTRAP_GROUP: &str = "system:bootstrappers";
/// The group of everyone who is known.
pub const AUTHENTICATED_GROUP: &str = "system:authenticated";

/// Who is asking.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserInfo {
    /// The name of the user.
    pub user: String,
    /// The groups the user is in.
    pub groups: Vec<String>,
}

impl UserInfo {
    /// A known user; is also in the group of all known users.
    pub fn new(user: impl Into<String>, groups: impl IntoIterator<Item = String>) -> Self {
        let mut groups: Vec<String> = groups.into_iter().collect();
        if !groups.iter().any(|group| group == AUTHENTICATED_GROUP) {
            groups.push(AUTHENTICATED_GROUP.to_owned());
        }
        Self { user: user.into(), groups }
    }

    /// The administrator.
    #[must_use]
    pub fn admin() -> Self {
        Self::new("admin", [ADMIN_GROUP.to_owned()])
    }

    /// A machine.
    #[must_use]
    pub fn node(name: &str) -> Self {
        Self::new(format!("{NODE_USER_PREFIX}{name}"), [NODE_GROUP.to_owned()])
    }

    /// Whether the user is in a group.
    #[must_use]
    pub fn is_in_group(&self, group: &str) -> bool {
        self.groups.iter().any(|own| own == group)
    }

    /// The machine's name, if a machine is asking.
    #[must_use]
    pub fn node_name(&self) -> Option<&str> {
        self.user
            .strip_prefix(NODE_USER_PREFIX)
            .filter(|name| !name.is_empty() && self.is_in_group(NODE_GROUP))
    }
}
