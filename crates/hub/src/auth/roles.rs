//! What the members of a group may do: a list of rules, and one pure question to it.

use super::{ADMINS, BOOTSTRAPPERS, CONTROLLERS, Identity, MACHINES, VIEWERS};

/// What somebody wants to do.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Attributes {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete` or `deletecollection`.
    pub verb: String,
    /// The group; empty for the core group.
    pub group: String,
    /// The resource.
    pub resource: String,
    /// The subresource, or nothing.
    pub subresource: String,
    /// The namespace, where there is one.
    pub namespace: Option<String>,
    /// The object, where one is named.
    pub name: Option<String>,
}

impl Attributes {
    /// `nodes`, or `nodes/status`.
    #[must_use]
    pub fn full_resource(&self) -> String {
        if self.subresource.is_empty() {
            self.resource.clone()
        } else {
            format!("{}/{}", self.resource, self.subresource)
        }
    }
}

/// Which objects a rule is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Names {
    /// All.
    Any,
    /// The one with the name of the machine that asks.
    Own,
    /// Those that the one who asks has requested: signing requests.
    Requested,
}

/// The answer of the rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Yes.
    Allow,
    /// Only if the object was requested by the one who asks.
    IfRequester,
    /// No.
    Deny,
}

/// Lets the members of a group do something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// The group of users.
    pub members: String,
    /// The verbs; `*` is all of them.
    pub verbs: Vec<String>,
    /// The group of the resources; `*` is all of them.
    pub group: String,
    /// The resources, as `nodes` and `nodes/status`; `*` is all of them.
    pub resources: Vec<String>,
    /// Which of the objects.
    pub names: Names,
}

impl Rule {
    /// A rule out of words with spaces between them.
    #[must_use]
    pub fn new(members: &str, verbs: &str, group: &str, resources: &str, names: Names) -> Self {
        let words = |text: &str| text.split_whitespace().map(ToOwned::to_owned).collect();
        Self {
            members: members.to_owned(),
            verbs: words(verbs),
            group: group.to_owned(),
            resources: words(resources),
            names,
        }
    }

    fn decide(&self, who: &Identity, what: &Attributes) -> Decision {
        let has = |list: &[String], word: &str| list.iter().any(|own| own == "*" || own == word);
        let fits = who.is_in(&self.members)
            && has(&self.verbs, &what.verb)
            && (self.group == "*" || self.group == what.group)
            && has(&self.resources, &what.full_resource());
        if !fits {
            return Decision::Deny;
        }
        match (self.names, &what.name) {
            (Names::Any, _) => Decision::Allow,
            // The name of a new object stands in its body: it is asked again when that is read.
            (Names::Own, None) if what.verb == "create" => Decision::Allow,
            (Names::Own, name) => match (who.machine_name(), name) {
                (Some(own), Some(name)) if own == name => Decision::Allow,
                _ => Decision::Deny,
            },
            (Names::Requested, Some(_)) => Decision::IfRequester,
            (Names::Requested, None) => Decision::Deny,
        }
    }
}

/// All the rules. What no rule allows is forbidden.
#[derive(Debug, Clone, Default)]
pub struct Roles {
    rules: Vec<Rule>,
}

/// Verbs that only look.
pub const READ: &str = "get list watch";
/// Verbs that write one object.
pub const WRITE: &str = "create update patch delete";

const CSR_GROUP: &str = "certificates.k8s.io";
const CSRS: &str = "certificatesigningrequests";

impl Roles {
    /// The rules for the built-in kinds, and more for the others.
    pub fn new(more: impl IntoIterator<Item = Rule>) -> Self {
        let mut rules = vec![
            Rule::new(ADMINS, "*", "*", "*", Names::Any),
            // A machine that leaves takes its Node with it.
            Rule::new(
                MACHINES,
                "get list watch create update patch delete",
                "",
                "nodes",
                Names::Own,
            ),
            Rule::new(MACHINES, "get update patch", "", "nodes/status", Names::Own),
            Rule::new(
                MACHINES,
                "get list watch create update patch delete",
                "coordination.k8s.io",
                "leases",
                Names::Own,
            ),
            Rule::new(CONTROLLERS, "*", "*", "*", Names::Any),
        ];
        for group in ["", "events.k8s.io"] {
            rules.push(Rule::new(MACHINES, "create update patch", group, "events", Names::Any));
        }
        for members in [MACHINES, BOOTSTRAPPERS] {
            rules.push(Rule::new(members, "create", CSR_GROUP, CSRS, Names::Any));
            rules.push(Rule::new(members, READ, CSR_GROUP, CSRS, Names::Requested));
        }
        rules.extend(more);
        Self { rules }
    }

    /// Whether somebody may do something.
    #[must_use]
    pub fn decide(&self, who: &Identity, what: &Attributes) -> Decision {
        if viewer_may(who, what) {
            return Decision::Allow;
        }
        if is_kept_from_controllers(what) && who.is_in(CONTROLLERS) && !who.is_in(ADMINS) {
            return Decision::Deny;
        }
        let mut decision = Decision::Deny;
        for rule in &self.rules {
            match rule.decide(who, what) {
                Decision::Allow => return Decision::Allow,
                Decision::IfRequester => decision = Decision::IfRequester,
                Decision::Deny => {}
            }
        }
        decision
    }
}

/// Viewers see everything but secrets.
fn viewer_may(who: &Identity, what: &Attributes) -> bool {
    who.is_in(VIEWERS)
        && READ.split(' ').any(|verb| verb == what.verb)
        && !(what.group.is_empty() && what.resource == "secrets")
}

/// Controllers do not approve certificates: that would let them become anyone.
fn is_kept_from_controllers(what: &Attributes) -> bool {
    what.group == CSR_GROUP && !READ.split(' ').any(|verb| verb == what.verb)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who(group: &str) -> Identity {
        match group {
            MACHINES => Identity::machine("a"),
            _ => Identity::new("x", [group.to_owned()]),
        }
    }

    /// `verb resource.group[/sub] [name]`
    fn what(text: &str) -> Attributes {
        let mut words = text.split(' ').map(ToOwned::to_owned);
        let verb = words.next().unwrap();
        let full = words.next().unwrap();
        let (full, subresource) = match full.split_once('/') {
            Some((full, sub)) => (full.to_owned(), sub.to_owned()),
            None => (full, String::new()),
        };
        let (resource, group) = full.split_once('.').unwrap_or((&full, ""));
        Attributes {
            verb,
            group: group.to_owned(),
            resource: resource.to_owned(),
            subresource,
            namespace: None,
            name: words.next(),
        }
    }

    #[test]
    fn who_may_do_what() {
        use Decision::{Allow, Deny, IfRequester};
        let roles = Roles::new([Rule::new(MACHINES, READ, "g.io", "things", Names::Any)]);
        let table = [
            (ADMINS, "delete secrets a", Allow),
            (ADMINS, "update certificatesigningrequests.certificates.k8s.io/approval a", Allow),
            (VIEWERS, "list things.g.io", Allow),
            (VIEWERS, "get secrets a", Deny),
            (VIEWERS, "delete things.g.io a", Deny),
            (CONTROLLERS, "patch things.g.io/status a", Allow),
            (CONTROLLERS, "get secrets a", Allow),
            (CONTROLLERS, "update certificatesigningrequests.certificates.k8s.io/approval a", Deny),
            (CONTROLLERS, "create certificatesigningrequests.certificates.k8s.io", Deny),
            (MACHINES, "get nodes a", Allow),
            (MACHINES, "watch nodes a", Allow),
            (MACHINES, "get nodes b", Deny),
            (MACHINES, "list nodes", Deny),
            (MACHINES, "create nodes", Allow),
            (MACHINES, "create nodes b", Deny),
            (MACHINES, "patch nodes/status a", Allow),
            (MACHINES, "patch nodes/status b", Deny),
            (MACHINES, "delete nodes a", Allow),
            (MACHINES, "delete nodes b", Deny),
            (MACHINES, "get secrets a", Deny),
            (MACHINES, "list things.g.io", Allow),
            (MACHINES, "patch things.g.io a", Deny),
            (MACHINES, "update leases.coordination.k8s.io a", Allow),
            (MACHINES, "update leases.coordination.k8s.io b", Deny),
            (MACHINES, "create events", Allow),
            (MACHINES, "create certificatesigningrequests.certificates.k8s.io", Allow),
            (BOOTSTRAPPERS, "create certificatesigningrequests.certificates.k8s.io", Allow),
            (BOOTSTRAPPERS, "get certificatesigningrequests.certificates.k8s.io a", IfRequester),
            (BOOTSTRAPPERS, "list certificatesigningrequests.certificates.k8s.io", Deny),
            (
                BOOTSTRAPPERS,
                "update certificatesigningrequests.certificates.k8s.io/approval a",
                Deny,
            ),
            (BOOTSTRAPPERS, "get nodes a", Deny),
            ("others", "get nodes a", Deny),
        ];
        for (group, text, expected) in table {
            assert_eq!(roles.decide(&who(group), &what(text)), expected, "{group}: {text}");
        }
    }

    #[test]
    fn a_machine_must_be_in_the_group_of_machines() {
        let odd = Identity::new("system:node:a", []);
        assert_eq!(Roles::new([]).decide(&odd, &what("get nodes a")), Decision::Deny);
    }
}
