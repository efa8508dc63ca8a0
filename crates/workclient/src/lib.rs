//! Gives a kube client for ManifestWorks over any driver.
