//! What of others an argument names by its address in the machine: who made the image
//! knows where things lie, and an attacker could guess.

/// Names of the arguments.
pub const ARGUMENTS: [&str; 8] =
    ["text", "config", "tables", "nested", "iotab", "devtab", "remap", "foreign_text"];
