//! How far something is.

/// Is told how far something is; the command line draws it.
pub trait Progress: Sync {
    /// So many steps are ahead.
    fn begin(&self, steps: usize);
    /// What is being done now.
    fn doing(&self, what: &str);
    /// So many more steps are done.
    fn advance(&self, steps: usize);
}

/// Nobody looks.
impl Progress for () {
    fn begin(&self, _: usize) {}
    fn doing(&self, _: &str) {}
    fn advance(&self, _: usize) {}
}
