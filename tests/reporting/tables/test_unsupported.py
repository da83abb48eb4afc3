from placement.reporting.tables import unsupported


def test_counts_come_first_and_equal_reasons_share_a_row():
    records = [
        {"device": "NPU", "name": f"op_{i}", "op_type": "LRN", "inputs": "f32[1]", "reason": "no"}
        for i in range(12)
    ]
    records.append(records[0] | {"device": "GPU", "reason": "too large"})
    text = unsupported.markdown(records)
    first, *_ = text.splitlines()
    assert first == "Operations that cannot run: 12 on NPU, 1 on GPU."
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert len(rows) == 2 + 2  # head and rule
    assert "`op_9`, 2 more" in rows[2]
    assert "too large" in rows[3]
