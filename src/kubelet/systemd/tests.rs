//! Whole units.

use std::path::Path;

use serde_json::Value;

use super::*;
use crate::kubelet::tree::{MemoryTree, Tree};

mod hosts;
