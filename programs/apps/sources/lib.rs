//! Nothing: the package stands for its dependencies.
