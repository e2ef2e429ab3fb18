//! Journal pages and the archive's columns for Python.

use std::sync::Mutex;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};

use super::lock;
use crate::core::columns as core;
use crate::core::page::Page;
use crate::core::telemetry;
use crate::core::tenants::{Cutter, Limits};
use crate::core::volume;

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Tombstones>()?;
    module.add_class::<Volume>()?;
    module.add_function(wrap_pyfunction!(telemetry_rows, module)?)?;
    module.add_function(wrap_pyfunction!(blocks_with, module)?)?;
    module.add_function(wrap_pyfunction!(read_journal_page, module)?)?;
    module.add_function(wrap_pyfunction!(cut_by_tenant, module)?)?;
    module.add_function(wrap_pyfunction!(telemetry_columns, module)?)
}

#[pyfunction]
fn telemetry_rows(block: &[u8]) -> PyResult<usize> {
    Ok(telemetry::rows_of(block)?)
}

/// Positions of the blocks in which `id` stands, at whatever place.
#[pyfunction]
fn blocks_with(py: Python<'_>, blocks: Vec<Bound<'_, PyBytes>>, id: &[u8]) -> Vec<usize> {
    let bodies: Vec<&[u8]> = blocks.iter().map(|block| block.as_bytes()).collect();
    py.detach(|| {
        let finder = memchr::memmem::Finder::new(id);
        let found = bodies.iter().enumerate().filter(|(_, body)| finder.find(body).is_some());
        found.map(|(position, _)| position).collect()
    })
}

/// (events, the field as it stands in the page) per block.
type Blocks<'py> = Vec<(usize, Bound<'py, PyBytes>)>;

#[pyfunction]
#[allow(clippy::type_complexity)] // The stub's signature.
fn read_journal_page<'py>(
    py: Python<'py>,
    page: &[u8],
) -> PyResult<(String, u64, u64, Blocks<'py>, Vec<(u64, u64)>)> {
    let read =
        py.detach(|| Page::read(page)).map_err(|_| PyValueError::new_err("not a page of a journal"))?;
    let blocks = read.blocks.iter().map(|block| (block.events, PyBytes::new(py, block.raw))).collect();
    Ok((read.instance.to_owned(), read.epoch, read.first_seq, blocks, read.ended))
}

#[pyclass(frozen, module = "snavio._native")]
struct Tombstones {
    inner: Mutex<core::Tombstones>,
}

#[pymethods]
impl Tombstones {
    #[new]
    fn new() -> Self {
        Self { inner: Mutex::default() }
    }

    #[pyo3(signature = (source, target, name, *, version, revoked_unix_ns))]
    fn add(&self, source: &str, target: &str, name: &str, version: u64, revoked_unix_ns: i64) {
        lock(&self.inner).add(source, target, name, version, revoked_unix_ns);
    }

    fn forget(&self, before_unix_ns: i64) {
        lock(&self.inner).forget(before_unix_ns);
    }

    fn __len__(&self) -> usize {
        lock(&self.inner).len()
    }
}

#[pyclass(frozen, module = "snavio._native")]
struct Volume {
    inner: Mutex<volume::Volume>,
}

#[pymethods]
impl Volume {
    #[new]
    #[pyo3(signature = (*, routes, routes_per_tenant, sources, sources_per_tenant))]
    fn new(routes: usize, routes_per_tenant: usize, sources: usize, sources_per_tenant: usize) -> Self {
        let bound = |rows, per_tenant| volume::Bound { rows, per_tenant };
        let inner = volume::Volume::new(bound(routes, routes_per_tenant), bound(sources, sources_per_tenant));
        Self { inner: Mutex::new(inner) }
    }

    fn add(&self, block: &[u8]) -> PyResult<()> {
        Ok(lock(&self.inner).add(block)?)
    }

    fn routes(&self) -> Vec<(String, String, u8, u64)> {
        lock(&self.inner).routes()
    }

    fn sources(&self) -> Vec<(String, u8, u64)> {
        lock(&self.inner).sources()
    }

    fn outcomes(&self) -> Vec<(u8, u64)> {
        lock(&self.inner).outcomes()
    }

    fn folded(&self) -> (u64, u64) {
        lock(&self.inner).folded()
    }
}

#[pyfunction]
#[allow(clippy::type_complexity)] // The stub's signature.
fn telemetry_columns<'py>(
    py: Python<'py>,
    pages: Vec<(i64, Bound<'py, PyBytes>)>,
    tombstones: &Tombstones,
) -> PyResult<(usize, Bound<'py, PyDict>, Bound<'py, PyList>, Bound<'py, PyList>)> {
    let bodies: Vec<(i64, &[u8])> = pages.iter().map(|(first, body)| (*first, body.as_bytes())).collect();
    let (columns, buffers) = py.detach(|| {
        let mut columns = core::Columns::default();
        let tombstones = lock(&tombstones.inner);
        for (first, body) in bodies {
            columns.add(body, first, &tombstones)?;
        }
        let buffers: Vec<_> = columns.told().iter().map(|(_, column)| column.buffers()).collect();
        Ok::<_, PyErr>((columns, buffers))
    })?;
    let told = PyDict::new(py);
    for ((name, column), (values, bits)) in columns.told().iter().zip(buffers) {
        let words = match column {
            core::Column::Text(texts) => Some(PyList::new(py, &texts.dictionary)?),
            _ => None,
        };
        let bits = bits.map(|bits| PyBytes::new(py, &bits));
        told.set_item(name, (PyBytes::new(py, &values), bits, words))?;
    }
    let rare = PyList::empty(py);
    for event in &columns.rare {
        rare.append((event.seq, event.at_unix_ns, &event.name, PyBytes::new(py, &event.fields)))?;
    }
    let late = PyList::empty(py);
    for found in &columns.late {
        let times = (found.revoked_unix_ns, found.settled_unix_ns);
        late.append((&found.source, &found.target, &found.name, times.0, times.1, found.count))?;
    }
    Ok((columns.len(), told, rare, late))
}

/// (source, event, reason, count, at_unix_ns, target, command name, id of a sample).
type TroubleRow<'py> = (String, &'static str, &'static str, u64, i64, String, String, Bound<'py, PyBytes>);

/// (source, family, events, JSON array); (page, at_unix_ns, name, fields); (page, tenant); counted; nobody's; troubles.
type CutPages<'py> = (
    Vec<(String, &'static str, u64, Bound<'py, PyBytes>)>,
    Vec<(usize, i64, String, Bound<'py, PyBytes>)>,
    Vec<(usize, String)>,
    u64,
    u64,
    Vec<TroubleRow<'py>>,
);

#[pyfunction]
#[pyo3(signature = (pages, *, told, troubles, part_events, part_bytes))]
fn cut_by_tenant<'py>(
    py: Python<'py>,
    pages: Vec<Bound<'py, PyBytes>>,
    told: u32,
    troubles: u32,
    part_events: u64,
    part_bytes: usize,
) -> PyResult<CutPages<'py>> {
    let bodies: Vec<&[u8]> = pages.iter().map(|body| body.as_bytes()).collect();
    let (parts, mut after) = py.detach(|| {
        let mut cutter = Cutter::new(Limits { told, troubles, part_events, part_bytes });
        for (page, body) in bodies.iter().enumerate() {
            cutter.add(page, body)?;
        }
        Ok::<_, PyErr>(cutter.parts())
    })?;
    let parts = parts
        .into_iter()
        .map(|part| (part.source, part.family, part.events, PyBytes::new(py, &part.body)))
        .collect();
    let troubles = after.troubles().into_iter().map(|each| {
        let sample = PyBytes::new(py, &each.sample);
        (each.source, each.event, each.reason, each.count, each.at_unix_ns, each.target, each.name, sample)
    });
    let troubles = troubles.collect();
    let rare = after.rare.into_iter().map(|seldom| {
        let fields = PyBytes::new(py, &seldom.event.fields);
        (seldom.page, seldom.event.at_unix_ns, seldom.event.name, fields)
    });
    Ok((parts, rare.collect(), after.spoken, after.counted, after.nobodys, troubles))
}
