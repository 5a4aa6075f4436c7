//! Who may do what on a hub, with the kinds and rules of `machinist up`: the attacks, and the table in
//! `docs/security.md`.
mod errors;
mod fixture;
mod reads;
mod roles;
mod table;
