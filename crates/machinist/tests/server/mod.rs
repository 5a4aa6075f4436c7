//! `machinist server bootstrap` from the outside, over real connections.
mod access;
mod faults;
mod fixture;
mod floods;
mod responses;
mod running;
mod sealed;
