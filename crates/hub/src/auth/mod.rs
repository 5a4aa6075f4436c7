//! Who is asking, and what they may do.
//!
//! | module | is |
//! |---|---|
//! | [`roles`] | pure: what the members of a group may do |
//! | [`tokens`] | bearer tokens, stored as hashes |
//! | [`certificates`] | the hub's own CA, and whom a client certificate names |
//! | [`csr`] | which signing requests are approved and signed, and the task that does it |

pub mod certificates;
pub mod csr;
pub mod roles;
pub mod tokens;

/// The group whose members may do everything.
pub const ADMINS: &str = "system:masters";
/// The group whose members may look at everything but secrets.
pub const VIEWERS: &str = "machinist:viewers";
/// The group of the controllers.
pub const CONTROLLERS: &str = "machinist:controllers";
/// The group of machines.
pub const MACHINES: &str = "system:nodes";
/// What comes before a machine's name in its user name.
pub const MACHINE_PREFIX: &str = "system:node:";
/// The group of machines that have no certificate yet.
pub const BOOTSTRAPPERS: &str = "system:bootstrappers";
/// The group of everyone who is known.
pub const AUTHENTICATED: &str = "system:authenticated";

/// Who is asking.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The name of the user.
    pub user: String,
    /// The groups the user is in.
    pub groups: Vec<String>,
}

impl Identity {
    /// A known user; is also in the group of all known users.
    pub fn new(user: impl Into<String>, groups: impl IntoIterator<Item = String>) -> Self {
        let mut groups: Vec<String> = groups.into_iter().collect();
        if !groups.iter().any(|group| group == AUTHENTICATED) {
            groups.push(AUTHENTICATED.to_owned());
        }
        Self { user: user.into(), groups }
    }

    /// The administrator.
    #[must_use]
    pub fn admin() -> Self {
        Self::new("admin", [ADMINS.to_owned()])
    }

    /// A machine.
    #[must_use]
    pub fn machine(name: &str) -> Self {
        Self::new(format!("{MACHINE_PREFIX}{name}"), [MACHINES.to_owned()])
    }

    /// Whether the user is in a group.
    #[must_use]
    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|own| own == group)
    }

    /// The machine's name, if a machine is asking.
    #[must_use]
    pub fn machine_name(&self) -> Option<&str> {
        self.user
            .strip_prefix(MACHINE_PREFIX)
            .filter(|name| !name.is_empty() && self.is_in(MACHINES))
    }
}
