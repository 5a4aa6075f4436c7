//! Authentication and authorization.
//!
//! | module | purpose |
//! |---|---|
//! | [`authorizer`] | the rules that are not in roles: those of administrators, machines and bootstrap tokens |
//! | [`tokens`] | bearer tokens, stored as hashes |
//! | [`certificates`] | the hub's CA, and the user that a client certificate names |
//! | [`machine`] | the roles that a machine was given, and which of its certificates count |
//! | [`node_graph`] | which objects concern a machine |
//! | [`sec1`] | keys in the form that all clients read |
//! | [`service_account`] | the signed tokens of service accounts |
//! | [`csr`] | which certificate signing requests are approved and signed |

pub mod authorizer;
pub mod certificates;
pub mod csr;
pub mod machine;
pub mod node_graph;
pub mod pool_names;
pub mod sec1;
pub mod service_account;
pub mod tokens;

/// Members may do everything.
pub const ADMIN_GROUP: &str = "system:masters";
/// Members may read everything but secrets, and of configs an outline.
pub const VIEWER_GROUP: &str = "machinist:viewers";
/// Members may read metrics, and nothing else.
pub const METRICS_GROUP: &str = "machinist:metrics-readers";
/// The group of controllers.
pub const CONTROLLER_GROUP: &str = "machinist:controllers";
/// The group of machines.
pub const NODE_GROUP: &str = "system:nodes";
/// Prefix of a machine's user name.
pub const NODE_USER_PREFIX: &str = "system:node:";
/// The group of machines that have no certificate yet.
pub const BOOTSTRAP_GROUP: &str = "system:bootstrappers";
/// The group of all authenticated users.
pub const AUTHENTICATED_GROUP: &str = "system:authenticated";

/// The group of everybody else.
pub const UNAUTHENTICATED_GROUP: &str = "system:unauthenticated";

/// An authenticated user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserInfo {
    /// User name.
    pub user: String,
    /// Groups of the user.
    pub groups: Vec<String>,
}

impl UserInfo {
    /// Returns an authenticated user in these groups and `system:authenticated`.
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

    /// The user of a machine.
    #[must_use]
    pub fn node(name: &str) -> Self {
        Self::new(format!("{NODE_USER_PREFIX}{name}"), [NODE_GROUP.to_owned()])
    }

    /// Whether the user is in a group.
    #[must_use]
    pub fn is_in_group(&self, group: &str) -> bool {
        self.groups.iter().any(|own| own == group)
    }

    /// Whether the user is an administrator or a controller. The limits of numbers and rates are for the others.
    #[must_use]
    pub fn is_privileged(&self) -> bool {
        self.is_in_group(ADMIN_GROUP) || self.is_in_group(CONTROLLER_GROUP)
    }

    /// The machine's name, if the user is a machine.
    #[must_use]
    pub fn node_name(&self) -> Option<&str> {
        self.user
            .strip_prefix(NODE_USER_PREFIX)
            .filter(|name| !name.is_empty() && self.is_in_group(NODE_GROUP))
    }
}
