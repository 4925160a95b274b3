//! `cargo bench`: the front end on a file of the size of a kernel module, and a whole scan of a fixture.

use std::hint::black_box;
use std::path::Path;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use fa_doctor::environment::{Environment, Request, RootId};
use fa_doctor::link::{Program, Scope};
use fa_doctor::packs::Packs;
use fa_doctor::python::{self, Origin, Symbol};

/// A module with classes, launches, guards and calls, about as long as a kernel module.
fn source() -> String {
    let mut text = String::from("import cutlass.cute as cute\nfrom cutlass import const_expr\n");
    for index in 0..120 {
        text.push_str(&format!(
            "
class Forward{index}:
    def __init__(self, tile: int, stages: int = 2):
        self.tile, self.stages = tile, stages

    @cute.jit
    def __call__(self, mQ, mK, mV, mO, scale: float = 1.0, mask=None):
        grid = [(mQ.shape[0] + self.tile - 1) // self.tile, 1, 1]
        self.kernel(mQ, mK, mV, mO, scale, mask).launch(grid=grid, block=[128, 1, 1])

    @cute.kernel
    def kernel(self, mQ, mK, mV, mO, scale, mask):
        for i in range(self.stages):
            if const_expr(mask is not None) and i % 2 == 0:
                mO[i] = f'{{i}}' if mask[i] else mQ[i] * mK[i] * mV[i] * scale
"
        ));
    }
    text
}

fn front_end(criterion: &mut Criterion) {
    let text = source();
    let mut group = criterion.benchmark_group("front end");
    group.throughput(Throughput::Bytes(text.len() as u64));
    group.bench_function("index", |bencher| {
        bencher.iter(|| {
            let name = Symbol::new("module");
            let origin = Origin { name, is_package: false, root: RootId(0), path: "module.py".to_owned() };
            python::index(black_box(text.as_bytes()), origin)
        });
    });
    group.finish();
}

fn fixture(criterion: &mut Criterion) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/FA001/positional-launch/bad");
    let request = Request { targets: vec![folder], ..Request::default() };
    let packs = Packs::embedded();
    criterion.bench_function("link a fixture", |bencher| {
        bencher.iter(|| {
            let environment = Environment::load(&request).expect("the fixture is there");
            let program = Program::load(&environment, &packs, Scope::default());
            black_box(program.audited.len())
        });
    });
}

criterion_group!(benches, front_end, fixture);
criterion_main!(benches);
