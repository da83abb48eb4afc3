"""OpenVINO models: reading, preparing, describing and converting them."""
