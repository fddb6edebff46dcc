fn main() {
    bulkhead_build::guest();
}
