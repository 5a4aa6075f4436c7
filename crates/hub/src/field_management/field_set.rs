//! A set of field paths, as a tree that is sorted on every level.
//!
//! Pure; the walks over objects build sets, [`super::update`] combines them, [`super::fields_v1`] encodes them.

use std::cmp::Ordering;

use super::merge_schema::{MergeSchema, TypeId};
use super::path_element::PathElement;

/// A set of field paths. No node is without a meaning: each is a member or has children.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldSet {
    nodes: Vec<FieldNode>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FieldNode {
    pub(super) element: PathElement,
    /// Whether the path that ends here is in the set.
    pub(super) member: bool,
    /// The paths that go on from here.
    pub(super) children: FieldSet,
}

impl FieldSet {
    /// A set of one path of fields.
    pub(super) fn of_fields(path: &[&str]) -> Self {
        let mut set = Self::default();
        if let Some((first, rest)) = path.split_first() {
            set.attach(PathElement::field(first), rest.is_empty(), Self::of_fields(rest));
        }
        set
    }

    /// Whether no path is in the set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    pub(super) fn nodes(&self) -> &[FieldNode] {
        &self.nodes
    }

    fn find(&self, element: &PathElement) -> Result<usize, usize> {
        // Most nodes are added in their order.
        match self.nodes.last() {
            Some(last) if last.element < *element => Err(self.nodes.len()),
            _ => self.nodes.binary_search_by(|node| node.element.cmp(element)),
        }
    }

    fn get(&self, element: &PathElement) -> Option<&FieldNode> {
        self.find(element).ok().map(|index| &self.nodes[index])
    }

    /// Whether the path of this one element is in the set.
    pub(super) fn has(&self, element: &PathElement) -> bool {
        self.get(element).is_some_and(|node| node.member)
    }

    /// The paths below an element.
    pub(super) fn below(&self, element: &PathElement) -> Option<&Self> {
        self.get(element).map(|node| &node.children).filter(|children| !children.is_empty())
    }

    /// Adds an element with what is below it. Adds nothing if that is nothing.
    pub(super) fn attach(&mut self, element: PathElement, member: bool, children: Self) {
        if !member && children.is_empty() {
            return;
        }
        match self.find(&element) {
            Ok(index) => {
                let node = &mut self.nodes[index];
                node.member |= member;
                if node.children.is_empty() {
                    node.children = children;
                } else if !children.is_empty() {
                    node.children = node.children.union(&children);
                }
            }
            Err(index) => self.nodes.insert(index, FieldNode { element, member, children }),
        }
    }

    /// The paths in either set.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let both = |left: &FieldNode, right: &FieldNode| FieldNode {
            element: left.element.clone(),
            member: left.member || right.member,
            children: left.children.union(&right.children),
        };
        self.zip(other, |left, right| match (left, right) {
            (Some(left), Some(right)) => Some(both(left, right)),
            (Some(one), None) | (None, Some(one)) => Some(one.clone()),
            (None, None) => None,
        })
    }

    /// The paths in both sets.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        self.zip(other, |left, right| {
            let (left, right) = (left?, right?);
            FieldNode::new(
                &left.element,
                left.member && right.member,
                left.children.intersection(&right.children),
            )
        })
    }

    /// The paths that are not in the other set.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        self.zip(other, |left, right| {
            let left = left?;
            let Some(right) = right else { return Some(left.clone()) };
            let member = left.member && !right.member;
            FieldNode::new(&left.element, member, left.children.difference(&right.children))
        })
    }

    /// The paths of which no beginning is in the other set.
    #[must_use]
    pub fn recursive_difference(&self, other: &Self) -> Self {
        self.zip(other, |left, right| {
            let left = left?;
            let Some(right) = right else { return Some(left.clone()) };
            if right.member {
                return None;
            }
            let children = left.children.recursive_difference(&right.children);
            FieldNode::new(&left.element, left.member, children)
        })
    }

    /// The set with every named field in it through which one of its paths goes.
    pub(super) fn with_named_fields(&self, schema: &MergeSchema, type_: Option<TypeId>) -> Self {
        let type_ = type_.map(|id| schema.get(id));
        let map = type_.and_then(|type_| type_.map.as_ref());
        let list = type_.and_then(|type_| type_.list.as_ref());
        let nodes = self.nodes.iter().map(|node| {
            let (named, below) = match &node.element {
                PathElement::Field(name) => match map {
                    Some(map) => (map.fields.contains_key(&**name), map.field_type(name)),
                    None => (false, None),
                },
                PathElement::Key(_) => (false, list.map(|list| list.items)),
                PathElement::Value(_) | PathElement::Index(_) => (false, None),
            };
            FieldNode {
                element: node.element.clone(),
                member: node.member || (named && !node.children.is_empty()),
                children: node.children.with_named_fields(schema, below),
            }
        });
        Self { nodes: nodes.collect() }
    }

    /// Calls a function on every path, in the order in which conflicts are listed.
    pub(super) fn for_each_path(&self, visit: &mut impl FnMut(&[&PathElement])) {
        fn walk<'a>(
            set: &'a FieldSet,
            path: &mut Vec<&'a PathElement>,
            visit: &mut impl FnMut(&[&PathElement]),
        ) {
            for node in set.nodes.iter().filter(|node| node.member) {
                path.push(&node.element);
                visit(path);
                path.pop();
            }
            for node in set.nodes.iter().filter(|node| !node.children.is_empty()) {
                path.push(&node.element);
                walk(&node.children, path, visit);
                path.pop();
            }
        }
        walk(self, &mut Vec::new(), visit);
    }

    /// Merges the nodes of two sets by element.
    fn zip<'a>(
        &'a self,
        other: &'a Self,
        mut merge: impl FnMut(Option<&'a FieldNode>, Option<&'a FieldNode>) -> Option<FieldNode>,
    ) -> Self {
        let (mut left, mut right) = (self.nodes.iter().peekable(), other.nodes.iter().peekable());
        let mut nodes = Vec::with_capacity(self.nodes.len());
        loop {
            let order = match (left.peek(), right.peek()) {
                (Some(left), Some(right)) => left.element.cmp(&right.element),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (None, None) => return Self { nodes },
            };
            let one = if order.is_le() { left.next() } else { None };
            let two = if order.is_ge() { right.next() } else { None };
            nodes.extend(merge(one, two));
        }
    }
}

impl FieldNode {
    fn new(element: &PathElement, member: bool, children: FieldSet) -> Option<Self> {
        let kept = member || !children.is_empty();
        kept.then(|| Self { element: element.clone(), member, children })
    }
}
