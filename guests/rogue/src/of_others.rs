//! Others' memory that an argument names by its address in the machine. The maker of the image knows the addresses, and
//! an attacker could guess them.

/// Names of the arguments.
pub const ARGUMENTS: [&str; 8] =
    ["text", "config", "tables", "nested", "iotab", "devtab", "remap", "foreign_text"];
