//! Stub.
use super::driver::Job;
pub fn jobs() -> Vec<Job> {
    Vec::new()
}
pub fn schema(_: &std::path::Path) -> Result<(), String> {
    Ok(())
}
