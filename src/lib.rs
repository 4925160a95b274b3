//! fa-doctor: a link checker for installed attention stacks.
//!
//! Data flows one way: environment -> sources -> index -> rules -> findings -> report or fix -> probe or smoke.

pub mod capability;
pub mod choice;
pub mod cli;
pub mod config;
pub mod environment;
pub mod finding;
pub mod fix;
pub mod link;
pub mod merge;
pub mod native;
pub mod packs;
pub mod pin;
pub mod probe;
pub mod progress;
pub mod python;
pub mod report;
pub mod rules;
pub mod scan;
pub mod smoke;
